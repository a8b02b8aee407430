--files x.log --fast
1
Exception in thread "main" joptsimple.UnrecognizedOptionException: fast is not a recognized option
