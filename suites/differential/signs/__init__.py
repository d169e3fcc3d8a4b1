"""By what each difference that is known is recognised; see `differences`."""
