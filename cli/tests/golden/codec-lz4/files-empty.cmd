--files
1
Exception in thread "main" joptsimple.OptionMissingRequiredArgumentException: Option files requires an argument
