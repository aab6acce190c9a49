"""The clusters stages: neighbours, near duplicates → pairs, clusters, cluster_stats, changes."""
