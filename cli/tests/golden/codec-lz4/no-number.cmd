--files a.log,00000000000000000000.log
1
Exception in thread "main" java.lang.NumberFormatException: For input string: "a"
