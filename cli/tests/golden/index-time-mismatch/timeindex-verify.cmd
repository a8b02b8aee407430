--files 00000000000000000000.timeindex --verify-index-only
0
Found timestamp mismatch in :$DIR/00000000000000000000.timeindex
  Index timestamp: 1009, log timestamp: 1010
