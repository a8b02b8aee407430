--files 00000000000000000000.log --print-data-log
1
Exception in thread "main" java.lang.RuntimeException: Error reading byte array of 10 byte(s): only 8 byte(s) available
