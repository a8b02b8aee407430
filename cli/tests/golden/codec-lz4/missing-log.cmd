--files 99999999999999999900.log,00000000000000000000.log
1
Exception in thread "main" java.lang.NumberFormatException: For input string: "99999999999999999900"
