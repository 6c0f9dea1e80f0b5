"""Sets of values that between them switch on everything that the chart can make."""

from typing import Any

DIRECT: dict[str, Any] = {
    "enabled": True,
    "name": "orders",
    "spec": {
        "brokers": {
            "replicas": 3,
            "rack": {},
            "external": {
                "type": "LoadBalancer",
                "hostTemplate": "kafka-{id}.example.com",
                "bootstrapHost": "kafka.example.com",
                "loadBalancerSourceRanges": ["10.0.0.0/8"],
            },
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
            "networkPolicy": {"clients": [{"podSelector": {}}]},
            "podAnnotations": {"example.com/of": "pod"},
            "nodeSelector": {"pool": "brokers"},
            "tolerations": [{"key": "brokers", "operator": "Exists", "effect": "NoSchedule"}],
            "priorityClassName": "system-cluster-critical",
        },
        "s3": {"bucket": "records", "credentialsSecret": "bucket-keys"},
        "etcd": {
            "endpoints": ["https://etcd:2379"],
            "tlsSecret": "etcd-tls",
            "tlsClientCertificate": True,
            "credentialsSecret": "etcd-user",
        },
        "config": {"flushIntervalMs": 250, "cacheSize": "2GiB"},
        "backups": {"s3": {"bucket": "backups", "region": "eu-west-1", "credentialsSecret": "backup-keys"}},
    },
}
EXPORT: dict[str, Any] = {
    "enabled": True,
    "args": ["--topic", "events", "--table", "lake.db.events"],
    "envSecrets": ["catalog-password"],
    "env": [{"name": "TZ", "value": "UTC"}],
    "podAnnotations": {"example.com/of": "export"},
    "nodeSelector": {"pool": "jobs"},
    "tolerations": [{"operator": "Exists"}],
    "serviceAccount": {"annotations": {"example.com/role": "export"}},
}
OPERATOR: dict[str, Any] = {
    "etcdImage": "registry.example.com/etcd:v3.6.6",
    "env": [{"name": "TZ", "value": "UTC"}],
    "podAnnotations": {"example.com/of": "operator"},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "serviceAccount": {"annotations": {"example.com/role": "operator"}},
    "networkPolicy": {
        "monitoring": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    },
}

EVERYTHING: dict[str, Any] = {
    "commonLabels": {"example.com/team": "streams"},
    "image": {"pullSecrets": ["registry"]},
    "operator": OPERATOR,
    "directCluster": DIRECT,
    "lakeExport": EXPORT,
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "rules": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}
SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "one namespace, autoscaled node ports": {
        "operator": {"watchNamespaces": ["orders", "payments"], "replicas": 1},
        "directCluster": {
            **DIRECT,
            "spec": {
                **DIRECT["spec"],
                "brokers": {"autoscaling": {"maxReplicas": 4}, "external": {"type": "NodePort"}},
            },
        },
        "lakeExport": {**EXPORT, "cluster": "other", "s3CredentialsSecret": "keys"},
    },
    "brokers without an operator": {
        "crds": {"install": False},
        "operator": {"enabled": False},
        "directCluster": {**DIRECT, "name": ""},
        "monitoring": {"serviceMonitor": {"enabled": True}},
    },
}
