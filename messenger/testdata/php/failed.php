<?php
// failed.php setup|show|take DBAL_URL QUEUE_NAME
// The failure transport on Doctrine: creates its table, lists it as
// messenger:failed:show does, or takes and acks all its messages.

require __DIR__.'/symfony.php';
needed('Doctrine/DBAL/autoload.php');

use Doctrine\DBAL\DriverManager;
use Symfony\Component\Console\Input\ArrayInput;
use Symfony\Component\Console\Output\BufferedOutput;
use Symfony\Component\Console\Output\OutputInterface;
use Symfony\Component\Messenger\Bridge\Doctrine\Transport\Connection;
use Symfony\Component\Messenger\Bridge\Doctrine\Transport\DoctrineReceiver;
use Symfony\Component\Messenger\Command\FailedMessagesShowCommand;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
use Symfony\Contracts\Service\ServiceLocatorTrait;
use Symfony\Contracts\Service\ServiceProviderInterface;

date_default_timezone_set('UTC');
[, $what, $url, $queue] = $argv;
$connection = new Connection(['table_name' => 'messenger_messages', 'queue_name' => $queue, 'redeliver_timeout' => 3600, 'auto_setup' => true], DriverManager::getConnection(['url' => $url]));
$receiver = new DoctrineReceiver($connection, new PhpSerializer());
switch ($what) {
    case 'setup':
        $connection->setup();
        break;
    case 'show':
        $locator = new class(['failed' => function () use ($receiver) { return $receiver; }]) implements ServiceProviderInterface {
            use ServiceLocatorTrait;
        };
        foreach ($receiver->all() as $envelope) {
            $id = $envelope->last(Symfony\Component\Messenger\Stamp\TransportMessageIdStamp::class)->getId();
            $command = new FailedMessagesShowCommand('failed', $locator);
            $out = new BufferedOutput(OutputInterface::VERBOSITY_VERBOSE);
            $command->run(new ArrayInput(['id' => $id, '--transport' => 'failed']), $out);
            echo $out->fetch();
        }
        break;
    case 'take':
        while ($envelopes = iterator_to_array($receiver->get(), false)) {
            foreach ($envelopes as $envelope) {
                echo told($envelope);
                $receiver->ack($envelope);
            }
        }
}
