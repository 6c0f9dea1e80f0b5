import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints the topic configs of the Apache Kafka on the class path: name, type, default, broker config, legal values. */
public class TopicConfigs {
    public static void main(String[] arguments) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(LogConfig.configDefCopy().configKeys()).values()) {
            if (key.internalConfig) continue;
            System.out.println(String.join("\t",
                key.name,
                key.type.name(),
                ConfigDef.convertToString(key.defaultValue, key.type),
                String.valueOf(ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS.get(key.name)),
                String.valueOf(key.validator)));
        }
    }
}
