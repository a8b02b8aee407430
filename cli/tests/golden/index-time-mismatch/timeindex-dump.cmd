--files 00000000000000000000.timeindex
0
Found timestamp mismatch in :$DIR/00000000000000000000.timeindex
  Index timestamp: 1009, log timestamp: 1010
