--files 00000000000000000000.log,x.foo --print-data-log
1
Exception in thread "main" java.lang.IllegalArgumentException: Unknown compression type id: 6
