--files 00000000000000000000.index --verify-index-only
0
