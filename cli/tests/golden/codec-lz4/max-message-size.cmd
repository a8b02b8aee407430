--files 00000000000000000000.index,00000000000000000000.log,00000000000000000000.timeindex --max-message-size 100
1
Exception in thread "main" java.util.NoSuchElementException
