"""Hidden Bias Benchmark (Pan, Raj, Yao and Zhu): MCQ and semi-generation."""
