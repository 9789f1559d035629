"""Table of public policies that `physai import` reads, and their download; none of their files is part of physai."""
