"""`icebridge maintain`: what maintenance finds to do in the tables of a sink, shown or done."""
