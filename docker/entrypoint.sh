#!/bin/sh
# frazil, unless Spark on Kubernetes starts this image as one of its executors.
set -eu
if [ "${1:-}" != executor ]; then
  exec frazil "$@"
fi
jars=$(python3 -c 'import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec("pyspark").origin).parent / "jars")')
# Spark numbers the options that it wants the JVM to have.
set --
number=0
while eval "option=\${SPARK_JAVA_OPT_$number:-}" && [ -n "$option" ]; do
  set -- "$@" "$option"
  number=$((number + 1))
done
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "$@" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
