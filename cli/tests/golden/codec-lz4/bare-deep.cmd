--files 00000000000000000000.log --deep-iteration --skip-record-metadata
0
