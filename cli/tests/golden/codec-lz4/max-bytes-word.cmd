--files 00000000000000000000.log --max-bytes many
1
Exception in thread "main" joptsimple.OptionArgumentConversionException: Cannot parse argument 'many' of option max-bytes
