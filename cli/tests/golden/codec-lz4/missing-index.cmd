--files 00000000000000000000.log,00000000000000000007.index
1
Exception in thread "main" java.nio.file.NoSuchFileException: $DIR/00000000000000000007.log
