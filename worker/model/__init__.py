"""The target model: mlx-lm's classes with the routed experts streamed and the recurrent state kept per position."""
