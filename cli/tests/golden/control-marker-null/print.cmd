--files 00000000000000000000.log --print-data-log
1
Exception in thread "main" java.lang.NullPointerException: Cannot invoke "java.nio.ByteBuffer.getShort()" because "value" is null
