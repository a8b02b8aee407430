--files 00000000000000000000.timeindex --index-sanity-check
0
