"""The papers' experiments on the shipped pair: models are run here, figures only draw results."""
