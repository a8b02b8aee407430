--files 00000000000000000000.index,00000000000000000000.log,00000000000000000000.timeindex --print-data-log
0
Non-consecutive offsets in $DIR/00000000000000000000.log
  -1 is followed by 48
  48 is followed by 63
  63 is followed by 65
  65 is followed by 71
  71 is followed by 75
  77 is followed by 82
  82 is followed by 85
  85 is followed by 87
