--files 00000000000000000000.index
1
Exception in thread "main" java.lang.IllegalArgumentException: Invalid position: -8 in read from FileRecords(size=11412, file=$DIR/00000000000000000000.log, start=0, end=2147483647)
