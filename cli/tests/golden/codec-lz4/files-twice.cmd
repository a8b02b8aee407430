--files x.log --files y.log
1
Exception in thread "main" joptsimple.MultipleArgumentsForOptionException: Found multiple arguments for option files, but you asked for only one
