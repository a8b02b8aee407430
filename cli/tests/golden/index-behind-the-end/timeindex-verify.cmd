--files 00000000000000000000.timeindex --verify-index-only
1
Exception in thread "main" java.lang.IllegalArgumentException: Slice from position 11413 exceeds end position of FileRecords(size=11412, file=$DIR/00000000000000000000.log, start=0, end=2147483647)
