--files 00000000000000000000.index --verify-index-only
0
Mismatches in :$DIR/00000000000000000000.index
  Index offset: -3, log offset: 109
