--files 00000000000000000000.index --index-sanity-check
1
Exception in thread "main" org.apache.kafka.storage.internals.log.CorruptIndexException: Corrupt index found, index file $DIR/00000000000000000000.index has non-zero size but the last offset is -3 which is less than the base offset 0
