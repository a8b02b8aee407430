--files 00000000000000000000.timeindex
0
Found out of order timestamp in :$DIR/00000000000000000000.timeindex
  Index timestamp: 1005, Previously indexed timestamp: 1010
  Index timestamp: 1005, Previously indexed timestamp: 1005
