"""The book: chapters as parameterised notebooks, their claims ledger, their execution and the site made of them."""
