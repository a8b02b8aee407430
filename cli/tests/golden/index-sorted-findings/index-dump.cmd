--files 00000000000000000000.index
0
Mismatches in :$DIR/00000000000000000000.index
  Index offset: 91, log offset: 99
  Index offset: 81, log offset: 89
  Index offset: 21, log offset: 29
