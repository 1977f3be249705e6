"""One engine for several processes: the speech process starts it, the others run utterances in slots lent to them."""
