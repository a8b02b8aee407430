--files 00000000000000000007.timeindex
1
Exception in thread "main" java.lang.IllegalArgumentException: Invalid max index size: -1
