--files 00000000000000000000.index
1
Exception in thread "main" java.util.NoSuchElementException
