"""Style sheet and SVG of the HTML pages that physai writes."""
