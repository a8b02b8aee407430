--files 00000000000000000000.timeindex
0
The following indexed offsets are not found in :$DIR/00000000000000000000.timeindex
Indexed offset: 0, found log offset: 9
