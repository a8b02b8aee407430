--files 00000000000000000000.index --verify-index-only
1
Exception in thread "main" java.util.NoSuchElementException
