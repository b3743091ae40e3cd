"""Scheduled jobs. Source: plugin contract §8.10."""
