--files abc.index
1
Exception in thread "main" java.lang.NumberFormatException: For input string: "abc"
