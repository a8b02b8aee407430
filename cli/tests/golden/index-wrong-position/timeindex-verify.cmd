--files 00000000000000000000.timeindex --verify-index-only
0
