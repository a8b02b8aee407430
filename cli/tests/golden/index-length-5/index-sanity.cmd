--files 00000000000000000000.index --index-sanity-check
0
