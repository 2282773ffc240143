"""Events, subjects, requests, ids, codec and errors: the one thing every part of Valet shares."""
