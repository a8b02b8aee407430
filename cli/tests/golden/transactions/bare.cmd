--files 00000000000000000000.log,00000000000000000013.log --print-data-log --skip-record-metadata
0
Non-consecutive offsets in $DIR/00000000000000000013.log
  -1 is followed by 13
