# nothing is planted: what the machine has is looked at
true
