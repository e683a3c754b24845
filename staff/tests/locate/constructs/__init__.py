"""What programs do, each thing in a function without arguments, as anybody writes it."""
