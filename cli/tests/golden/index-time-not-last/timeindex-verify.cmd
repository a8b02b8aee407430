--files 00000000000000000000.timeindex --verify-index-only
0
Found timestamp mismatch in :$DIR/00000000000000000000.timeindex
  Index timestamp: 1001, log timestamp: 1011
  Index timestamp: 1012, log timestamp: 1011
Found out of order timestamp in :$DIR/00000000000000000000.timeindex
  Index timestamp: 1001, Previously indexed timestamp: 1010
The following indexed offsets are not found in :$DIR/00000000000000000000.timeindex
Indexed offset: 102, found log offset: 109
