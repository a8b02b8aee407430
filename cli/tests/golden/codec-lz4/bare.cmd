--files 00000000000000000000.log --print-data-log --skip-record-metadata
0
