"""Hidden Bias Benchmark (Pan, Raj, Yao and Zhu): multiple choice and semi-generation."""
