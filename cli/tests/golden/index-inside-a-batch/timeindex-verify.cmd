--files 00000000000000000000.timeindex --verify-index-only
0
The following indexed offsets are not found in :$DIR/00000000000000000000.timeindex
Indexed offset: 59, found log offset: -1
