import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/** One Elasticsearch node until SIGTERM: {@code SearchNode HOME NAME=VALUE ...}. */
class SearchNode {
    public static void main(String[] arguments) throws Exception {
        LogConfigurator.configureESLogging();
        var settings = Settings.builder().put("path.home", arguments[0]);
        Arrays.stream(arguments).skip(1).map(each -> each.split("=", 2)).forEach(pair -> settings.put(pair[0], pair[1]));
        var config = Path.of(arguments[0], "config");
        var environment = InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), config, () -> "node");
        LogConfigurator.setNodeName("node");
        LogConfigurator.configure(environment, true);
        var modules = PluginsLoader.loadModulesBundles(environment.modulesDir(), false);
        var node = new Node(environment, PluginsLoader.createPluginsLoader(modules, Set.of(), Map.of()));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
        node.start();
        new CountDownLatch(1).await();
    }

    private static void close(Node node) {
        try (node) {
            node.prepareForClose();
        } catch (Exception error) {
            error.printStackTrace();
        }
    }
}
